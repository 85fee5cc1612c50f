"""An hour on an accelerator: measurements that need one, in resumable steps."""
