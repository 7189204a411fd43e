/* SPDX-License-Identifier: Apache-2.0 */
/* test.h - cmocka with the headers it asks for. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
