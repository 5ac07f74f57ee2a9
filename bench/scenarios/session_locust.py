"""session.yaml for Locust's FastHttpUser."""

# mypy: ignore-errors

from locust import FastHttpUser, task


class Session(FastHttpUser):
    """A user without thinking time."""

    @task
    def session(self) -> None:
        """Log in, and fetch ten times with the token."""
        token = self.client.get("/session").json()["token"]
        headers = {"Authorization": f"Bearer {token}"}
        for _ in range(10):
            self.client.get("/page", headers=headers)
