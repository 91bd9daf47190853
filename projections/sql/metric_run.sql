select planned, missing, model, state from runs where run_id = $1;
