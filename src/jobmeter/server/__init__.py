"""The composition root and the HTTP edge."""

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
