"""The study of planners: placelab's own against those of the papers, on published profiles and on captured models."""
