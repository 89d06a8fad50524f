"""Model predictive control exported as a library, and called from C++."""

import subprocess

import numpy as np

import staged as st


@st.function
def plan(state, steps, horizon=12):
    """The first force of the cheapest ones over the horizon, by gradient descent: a mass on rails."""
    A = np.array([[1.0, 0.1], [0.0, 1.0]])
    B = np.array([0.005, 0.1])

    def cost(forces):
        x, total = state, 0.0
        for t in st.range(horizon):
            x = A @ x + B * forces[t]
            total += x @ x + 0.1 * forces[t] ** 2
        return total

    forces = st.zeros(horizon, dtype=state.dtype)
    hessian = st.hessian(cost)(forces)
    for _ in st.range(steps):
        forces -= st.linalg.solve(hessian, st.grad(cost)(forces))
    return {"force": forces[0], "cost": cost(forces)}


STATE = np.array([1.0, -0.5])


def riccati():
    """The first force and the cost, by the recursion of linear quadratic control."""
    A, B = np.array([[1.0, 0.1], [0.0, 1.0]]), np.array([[0.005], [0.1]])
    value = np.eye(2)
    for _ in range(11):
        gain = np.linalg.solve(0.1 + B.T @ value @ B, B.T @ value @ A)
        value = np.eye(2) + A.T @ value @ (A - B @ gain)
    gain = np.linalg.solve(0.1 + B.T @ value @ B, B.T @ value @ A)
    total = A.T @ value @ (A - B @ gain)
    return (-gain @ STATE)[0], STATE @ total @ STATE


def test_the_plan_is_riccatis():
    found = plan(STATE, 1)
    force, cost = riccati()
    np.testing.assert_allclose([found["force"], found["cost"]], [force, cost], rtol=1e-9)


CALLER = r"""
#include "plan.h"
#include <cstdio>

PLAN_STATIC_ARENA(arena);

int main() {
    double state[2] = {1.0, -0.5}, force = 0.0, cost = 0.0;
    plan_args args = {};
    args.state = state;
    args.steps = 1;
    args.force = &force;
    args.cost = &cost;
    st_host host = {};
    if (plan(&args, arena, &host) != ST_OK) {
        std::puts(host.message);
        return 1;
    }
    std::printf("%.17g %.17g\n", force, cost);
    return 0;
}
"""


def test_from_cpp(tmp_path):
    plan.stage(STATE, 1).export(tmp_path)
    subprocess.run(["make", "-s", "lib"], cwd=tmp_path, check=True)
    (tmp_path / "caller.cpp").write_text(CALLER)
    subprocess.run(
        [
            "g++",
            "-std=c++17",
            "-Wall",
            "-Wextra",
            "-Werror",
            "caller.cpp",
            "-I.",
            "libplan.a",
            "-lm",
            "-pthread",
            "-o",
            "caller",
        ],
        cwd=tmp_path,
        check=True,
    )
    out = subprocess.run(["./caller"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    np.testing.assert_allclose([float(each) for each in out.split()], riccati(), rtol=1e-9)
