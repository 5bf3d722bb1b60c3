"""The dashboard: a page at `/` that shows a pond and lets those with permission change it.

| file | what it holds |
|---|---|
| `routes.py` | the routes that the HTTP server mounts |
| `dashboard_assets.py` | the page and its scripts, styles and pictures, all ours and all local |
| `dashboard_actions.py` | savepoint, rollback, rescale and fork, each checked by the authorizer |
| `pond_info.py` | what the page shows beside the relations of SQL |
| `assets/` | HTML, CSS and JavaScript modules without a build step |

The page reads everything else by `POST /v1/sql`, from the schema `millpond` and the views, with the rights of
its user.
"""
