"""All SQL of the corpus: the file of a workspace, its schema, and every statement that reads or changes it."""
