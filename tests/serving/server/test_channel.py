"""Letters over a pair of sockets: whole, in order, bounded, and the end of the other side is told."""

import asyncio
import socket

from jaxspec.serving.server.channel import MOST, Channel


async def pair(receive, lost=lambda: None):
  """A sending and a receiving channel."""
  one, other = socket.socketpair()
  sender = await Channel.over(one, lambda data: None, lost)
  return sender, await Channel.over(other, receive, lost)


async def until(holds):
  for _ in range(1000):
    if holds():
      return
    await asyncio.sleep(0.005)
  raise AssertionError("it does not come to that")


def test_letters_arrive_whole_and_in_order():
  async def run():
    got, lost = [], []
    sender, receiver = await pair(got.append, lambda: lost.append(1))
    sent = [b"", b"a", b"b" * 100_000, b"c" * 1_000_000, *(bytes([n]) * n for n in range(200))]
    for each in sent:
      sender.send(each)
      await sender.room()
    await until(lambda: len(got) == len(sent))
    assert got == sent and not lost
    sender.send(b"the last one")
    sender.close()
    await until(lambda: len(lost) == 2)
    assert got[-1] == b"the last one"
    receiver.send(b"nobody is there")

  asyncio.run(run())


def test_a_side_that_does_not_read_stops_the_other_one():
  async def run():
    one, other = socket.socketpair()
    sender = await Channel.over(one, lambda data: None, lambda: None)
    for _ in range(100):
      sender.send(bytes(100_000))
    waiting = asyncio.ensure_future(sender.room())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    got = []
    receiver = await Channel.over(other, got.append, lambda: None)
    await asyncio.wait_for(waiting, 5)
    await until(lambda: len(got) == 100)
    receiver.close()
    sender.close()

  asyncio.run(run())


def test_a_length_that_is_none_ends_the_channel():
  async def run():
    one, other = socket.socketpair()
    lost = []
    await Channel.over(other, lambda data: None, lambda: lost.append(1))
    one.sendall((MOST + 1).to_bytes(4))
    await until(lambda: lost)
    one.close()

  asyncio.run(run())
