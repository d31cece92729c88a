"""Office files: DOCX, XLSX and PPTX, once their container is known to be safe to open."""
