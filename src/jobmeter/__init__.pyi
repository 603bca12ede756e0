from jobmeter.errors import ConfigurationError as ConfigurationError
from jobmeter.errors import ConflictError as ConflictError
from jobmeter.errors import DamagedDataError as DamagedDataError
from jobmeter.errors import ForbiddenError as ForbiddenError
from jobmeter.errors import InvalidRequestError as InvalidRequestError
from jobmeter.errors import JobmeterError as JobmeterError
from jobmeter.errors import LimitExceededError as LimitExceededError
from jobmeter.errors import NotFoundError as NotFoundError
from jobmeter.errors import QueryTimeoutError as QueryTimeoutError
from jobmeter.errors import ThrottledError as ThrottledError
from jobmeter.errors import UnauthenticatedError as UnauthenticatedError
from jobmeter.errors import UnavailableError as UnavailableError
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
