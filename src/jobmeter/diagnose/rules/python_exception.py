"""A Python program ended by an uncaught exception."""

from jobmeter.diagnose.causes import Cause, Signs, rule_of
from jobmeter.diagnose.rule import Weight

RULE = rule_of(
    Cause(
        name="python_exception",
        sees="An exception that no other rule explains ended a replica.",
        advice="Read the traceback from its last line upwards.",
        signs=Signs(exception=True),
        weight=Weight.GENERIC,
    )
)
