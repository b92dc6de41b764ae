"""What generation does with a client: take a place, hand the request over."""

from mlxcel.link.channel import Channel
from mlxcel.link.client import WorkerClient
from mlxcel.link.messages import Submit


def ask(client: WorkerClient, request: Submit) -> Channel:
    channel = client.open(request.id)
    client.send(request)
    return channel
