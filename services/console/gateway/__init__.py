"""What a browser is answered: the page's files, the services behind it, logins and the live stream."""
