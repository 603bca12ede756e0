"""The one question and how it is answered."""
