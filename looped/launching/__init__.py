"""From a grid to records: start runs on an engine, watch them, and collect their records.

    WORK/RUN_ID/        work folder of a run (`looped.training.loop`)
    WORK/RUN_ID/failure.txt   error of its last attempt
    WORK/.jobs/         files of the engine: scripts, results, logs
    runs/NAME/RUN_ID.json     collected records

A run is identified by the hash of its spec. Its state is read from its folder only, so any number
of launchers and watchers agree.
"""
