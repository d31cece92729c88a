"""Which passages a question needs, judged without a language model. Reads the index; knows no tools, no turns and no jobs."""
