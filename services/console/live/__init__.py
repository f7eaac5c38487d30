"""The live state of the page: mirrors of the services' lists, the picture made of them, and its broadcast."""
