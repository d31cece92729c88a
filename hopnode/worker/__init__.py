"""The working half of Hopnode: jobs, corpus, harness, inference and the stories that join them. Knows nothing of HTTP routes."""
