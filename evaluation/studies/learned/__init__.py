"""The learned placers of the papers on the problems of their papers, and all rivals."""
