"""The one pipeline in: validate, identify, keep, acknowledge."""
