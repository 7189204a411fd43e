/* SPDX-License-Identifier: Apache-2.0 */
/* test.h - cmocka with the headers it asks for. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A test, a fake or a callback has the parameters of its kind, whether it needs them or not. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
