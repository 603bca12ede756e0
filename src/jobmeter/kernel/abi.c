/* Which library this is. */
#include "common.h"

EXPORTED int64_t jobmeter_abi(void) { return JOBMETER_ABI; }
