"""The composition root and the HTTP edge."""
