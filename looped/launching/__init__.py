"""From a grid to records: runs started on an engine, watched, and collected.

    WORK/RUN_ID/        work folder of a run (`looped.training.loop`)
    WORK/RUN_ID/failure.txt   how its last attempt failed
    WORK/.jobs/         what the engine writes: scripts, results, logs
    runs/NAME/RUN_ID.json     records, collected

A run is known by the hash of its spec. Whether it is done, running or waiting is read off its
folder alone, so any number of launchers and watchers agree.
"""
