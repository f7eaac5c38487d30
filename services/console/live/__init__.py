"""What the page shows live: mirrors of the services' lists, the picture drawn from them, and who is sent which part."""
