"""Commands about instances and what runs on them."""
