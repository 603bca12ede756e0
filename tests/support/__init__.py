"""Parts that tests share: real databases, schedulers and browsers, fakes below the product, and ways to wait."""
