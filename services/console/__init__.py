"""The web console: a gateway to the services, one live stream of the machine's state, and the page itself."""
