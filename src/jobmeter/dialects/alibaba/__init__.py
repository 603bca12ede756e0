"""Shared by Alibaba Cloud's APIs: how a call names its operation, values, answers and errors.

Each product is a dialect of its own, in a folder beside this one, made of its tables (``product.Product``).
"""
