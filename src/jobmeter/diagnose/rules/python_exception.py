"""A Python program ended by an uncaught exception."""

from jobmeter.diagnose.causes import Cause
from jobmeter.diagnose.rule import Weight

RULE = Cause(
    name="python_exception",
    title="Python exception",
    sees="An exception that no other rule explains ended a replica.",
    advice="Read the traceback from its last line upwards.",
    exception=True,
    weight=Weight.GENERIC,
).rule
