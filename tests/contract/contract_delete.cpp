#include "tests/contract/api_contract.h"
