from jobmeter.program.asynchronous import AsyncClient as AsyncClient
from jobmeter.program.client import Client as Client

__version__: str
