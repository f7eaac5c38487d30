"""The HTTP side of the console: the page's files, the proxy to the services, logins and the live stream."""
