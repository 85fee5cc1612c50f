"""Programs that time or attack single parts of the library; `experiments.configs.bench` names them."""
