from jobmeter.program import hf as hf
from jobmeter.program import lightning as lightning
from jobmeter.program import tensorboard as tensorboard
from jobmeter.program.asynchronous import AsyncClient as AsyncClient
from jobmeter.program.client import Client as Client
from jobmeter.program.log import event as event
from jobmeter.program.log import flush as flush
from jobmeter.program.log import log as log
from jobmeter.program.log import meta as meta
from jobmeter.program.log import span as span

__version__: str
