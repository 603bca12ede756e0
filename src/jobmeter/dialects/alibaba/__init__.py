"""Shared by Alibaba Cloud's APIs: operations in calls, values, answers and errors.

Each product is a separate dialect, in a folder beside this one, made of its tables (``product.Product``).
"""
