"""The operations: https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml."""
