"""How a sink fails."""


class SinkError(Exception):
    """A sink did not take a batch; ``message`` is one sentence without a secret. It is sent again later."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class RefusedError(SinkError):
    """A sink will never take this batch as it is: it is too large, or one of its lines is invalid there."""
