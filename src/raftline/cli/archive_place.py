"""Where archives are when neither a flag nor the topic says so: ``pipeline.archive_dir``."""

import os

import typer

from raftline.config.loader import SettingsError, load


def archive_dir_default() -> str:
    """Return the setting as the environment has it (RAFTLINE_PIPELINE_ARCHIVE_DIR)."""
    try:
        return load(environment=os.environ).pipeline.archive_dir
    except SettingsError as error:
        raise typer.BadParameter("; ".join(error.problems)) from error
