"""The tables of recorded data folders. An empty database gets the newest tables, see ``jobmeter.registry.migrate``."""

revision = "0005"
down_revision = None
