"""Parts that the products share."""
