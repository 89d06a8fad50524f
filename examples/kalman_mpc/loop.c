// Calls the exported controller 1,000 times a second, on a simulated cart; `control.py` builds it.
//
// loop SECONDS: prints the cart four times a second, and at the end how long the calls took.
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "control.h"

enum { HZ = 1000, NANOSECONDS = 1000000000 };

CONTROL_STATIC_ARENA(arena);

typedef struct {
    double x, speed, angle, turning;
} cart;

// The cart itself, with the sine and cosine that the controller's model leaves out; constants as in `control.py`.
static cart moved(cart at, double force, double seconds) {
    const double gravity = 9.81, pole = 0.1, mass = 1.1, length = 0.5;
    const double sine = sin(at.angle), cosine = cos(at.angle);
    const double push = (force + pole * length * at.turning * at.turning * sine) / mass;
    const double ddangle = (gravity * sine - cosine * push) / (length * (4.0 / 3.0 - pole * cosine * cosine / mass));
    const double ddx = push - pole * length * ddangle * cosine / mass;
    return (cart){
        at.x + seconds * at.speed,
        at.speed + seconds * ddx,
        at.angle + seconds * at.turning,
        at.turning + seconds * ddangle,
    };
}

// A sensor is off by about `deviation`: the sum of four uniform numbers is nearly normal.
static double noise(double deviation) {
    double sum = -2.0;
    for (int i = 0; i < 4; ++i) {
        sum += rand() / (RAND_MAX + 1.0);
    }
    return deviation * sum * sqrt(3.0);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
    const long calls = (long)(HZ * (argc > 1 ? atof(argv[1]) : 2.0));
    double estimate[CONTROL_ESTIMATE_SIZE] = {0.0}, covariance[CONTROL_COVARIANCE_SIZE] = {0.0};
    double plan[CONTROL_PLAN_SIZE] = {0.0}, measurement[CONTROL_MEASUREMENT_SIZE];
    double new_estimate[CONTROL_ESTIMATE_SIZE], new_covariance[CONTROL_COVARIANCE_SIZE], new_plan[CONTROL_PLAN_SIZE];
    for (int i = 0; i < 4; ++i) {
        covariance[5 * i] = 0.01;
    }
    control_args args = {
        .estimate = estimate,
        .covariance = covariance,
        .plan = plan,
        .measurement = measurement,
        .result_estimate = new_estimate,
        .result_covariance = new_covariance,
        .result_plan = new_plan,
    };
    st_host host = {0};
    cart at = {.x = 0.5, .angle = 0.15};
    double longest = 0.0, total = 0.0;
    long late = 0;
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    for (long call = 0; call < calls; ++call) {
        measurement[0] = at.x + noise(1e-3);
        measurement[1] = at.angle + noise(1e-3);
        const double begin = now();
        if (control(&args, arena, &host) != ST_OK) {
            fprintf(stderr, "%s\n", host.message);
            return 1;
        }
        const double seconds = now() - begin;
        total += seconds;
        longest = seconds > longest ? seconds : longest;
        late += seconds > 1.0 / HZ;
        memcpy(estimate, new_estimate, sizeof estimate);
        memcpy(covariance, new_covariance, sizeof covariance);
        memcpy(plan, new_plan, sizeof plan);
        if (call % (HZ / 4) == 0) {
            printf("%5.2f s: x %+.3f m, angle %+.4f rad, force %+6.2f N\n", (double)call / HZ, at.x, at.angle, plan[0]);
        }
        at = moved(at, plan[0], 1.0 / HZ);
        next.tv_nsec += NANOSECONDS / HZ;
        next.tv_sec += next.tv_nsec / NANOSECONDS;
        next.tv_nsec %= NANOSECONDS;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
    }
    printf("in the end: x %+.3f m, angle %+.4f rad\n", at.x, at.angle);
    printf("%ld calls of %.0f us, the longest %.0f us, %ld over a period\n", calls, 1e6 * total / (double)calls, 1e6 * longest, late);
    return 0;
}
