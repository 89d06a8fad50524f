"""A thrown ball that bounces: the throw that ends in the bucket, found by gradients through the contacts.

python -m examples.newton.ball           # aim, and draw the flight
python -m examples.newton.ball --show    # print the generated C and stop
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # also for `python examples/newton/ball.py`

import staged as st
from examples.command_line import add_flags, run

GRAVITY = 9.81  # m / s^2
KEPT = 0.8  # of the vertical speed at a contact
GRIP = 0.9  # of the horizontal speed at a contact
STEP = 0.01  # s
START = 1.5  # m, the height of the hand
ROWS, COLUMNS, WIDTH, HEIGHT = 12, 72, 8.0, 2.4  # of the picture, in characters and in m


def move(ball, drag, time):
    """One step of length `time` under gravity and air drag, whose force is held over the step."""
    x, y, vx, vy = ball
    speed = st.sqrt(vx * vx + vy * vy)
    ax, ay = -drag * speed * vx, -GRAVITY - drag * speed * vy
    half = 0.5 * time * time
    return x + vx * time + ax * half, y + vy * time + ay * half, vx + ax * time, vy + ay * time


def contact_time(ball, drag):
    """The time within its step at which a ball reaches the ground: the positive root of y + vy t + ay t^2 / 2."""
    _, y, vx, vy = ball
    ay = -GRAVITY - drag * st.sqrt(vx * vx + vy * vy) * vy
    return -(vy + st.sqrt(vy * vy - 2.0 * ay * y)) / ay


def turn(ball, drag, left):
    """The ball after one step, the time it took (at most `left`), and whether it ended at the ground.

    A step that would end below the ground ends at the contact instead. The contact's time depends on the throw, and the
    gradient knows that: were contacts put at the ends of steps it would be wrong, however short the steps.
    """
    step = st.minimum(STEP, left)
    after, touches = move(ball, drag, step), False
    if after[1] < 0.0:
        step, touches = contact_time(ball, drag), True
        x, _, vx, vy = move(ball, drag, step)
        after = (x, 0.0, GRIP * vx, -KEPT * vy)
    return after, step, touches


def fly(vx, vy, drag, duration):
    """The position of a ball after `duration`, and its contacts with the ground: (x, y, contacts)."""
    ball = (0.0, START, vx, vy)
    time, contacts = 0.0, 0
    while time < duration:
        ball, step, touches = turn(ball, drag, duration - time)
        time += step
        if touches:
            contacts += 1
    return ball[0], ball[1], contacts


@st.function
def landing(vx, vy, drag, duration):
    """The final (x, y), the derivatives of each by (vx, vy), and the number of contacts."""

    def across(vx, vy):
        x, _, contacts = fly(vx, vy, drag, duration)
        return x, contacts

    def up(vx, vy):
        return fly(vx, vy, drag, duration)[1]

    (x, contacts), d_x = st.value_and_grad(across, argnums=(0, 1), has_aux=True)(vx, vy)
    y, d_y = st.value_and_grad(up, argnums=(0, 1))(vx, vy)
    return (x, y), d_x, d_y, contacts


@st.function
def aim(vx, vy, bucket_x, bucket_y, drag, duration):
    """The throw, starting from (vx, vy), with which the ball is in the bucket after `duration`; and the picture of it.

    Newton's method for the two equations x = bucket_x and y = bucket_y, with their derivatives through the flight; a step
    is at most 1 m/s long, as another number of contacts is another equation.
    """
    miss, tries = 1.0, 0
    while miss > 1e-9 and tries < 50:
        (x, y), (x_by_vx, x_by_vy), (y_by_vx, y_by_vy), contacts = landing(vx, vy, drag, duration)
        off_x, off_y = bucket_x - x, bucket_y - y
        miss = st.sqrt(off_x * off_x + off_y * off_y)
        print(f"throw {tries:2d}: vx {vx:7.4f}, vy {vy:7.4f} m/s: {contacts} contacts, misses by {miss:.2e} m")
        determinant = x_by_vx * y_by_vy - x_by_vy * y_by_vx
        dvx = (y_by_vy * off_x - x_by_vy * off_y) / determinant
        dvy = (x_by_vx * off_y - y_by_vx * off_x) / determinant
        short = st.minimum(1.0, 1.0 / st.sqrt(dvx * dvx + dvy * dvy))
        vx, vy = vx + short * dvx, vy + short * dvy
        tries += 1
    draw(vx, vy, bucket_x, bucket_y, drag, duration)
    return vx, vy, tries


def cell(x, y):
    """The row and column of the picture that shows a place."""
    return ROWS - 1 - st.astype(st.floor(y / HEIGHT * ROWS), st.i64), st.astype(st.floor(x / WIDTH * COLUMNS), st.i64)


def draw(vx, vy, bucket_x, bucket_y, drag, duration):
    """Print the flight: the ground, the ball's positions, and the bucket."""
    picture = st.full((ROWS, COLUMNS), ord(" "), dtype=st.i64)
    picture[ROWS - 1, :] = ord("_")
    ball, time = (0.0, START, vx, vy), 0.0
    while time < duration:
        ball, step, _ = turn(ball, drag, duration - time)
        time += step
        row, column = cell(ball[0], ball[1])
        if 0 <= row < ROWS and 0 <= column < COLUMNS:
            picture[row, column] = ord("o")
    row, column = cell(bucket_x, bucket_y)
    if 0 <= row < ROWS and 0 <= column < COLUMNS:
        picture[row, column] = ord("U")
    for row in picture:
        for code in row:
            print(f"{code:c}", end="")
        print()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--bucket", type=float, nargs=2, default=(7.0, 0.5), metavar=("X", "Y"), help="m; default 7 0.5"
    )
    parser.add_argument("--drag", type=float, default=0.02, help="air drag, 1/m")
    parser.add_argument("--duration", type=float, default=2.2, help="s")
    add_flags(parser)
    options = parser.parse_args()
    run(options, aim, 2.0, 3.0, *options.bucket, options.drag, options.duration)


if __name__ == "__main__":
    main()
