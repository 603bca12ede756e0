"""Huawei's Ascend NPUs through DCMI."""
