"""The face of Hopnode: HTTP routes and the command line. Holds no retrieval rules of its own."""
