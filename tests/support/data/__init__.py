"""What tests put into a node: sample files, corpora, sources and reports, and checks of what became of them."""
