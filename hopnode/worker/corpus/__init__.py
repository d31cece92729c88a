"""What a workspace knows: parsing, chunking, text store, lexical and vector indexes, behind one door (`corpus.Corpus`)."""
