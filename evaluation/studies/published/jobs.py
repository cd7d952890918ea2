"""All jobs for which public planners publish their answers."""

from evaluation.studies.published import aceso, galvatron, helix, mist, torchtitan

JOBS = (aceso.JOB, galvatron.JOB, *helix.JOBS, mist.JOB, *torchtitan.JOBS)
