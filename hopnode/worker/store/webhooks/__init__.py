"""Who is to be told of what, and what became of every telling; sending is not known here."""
