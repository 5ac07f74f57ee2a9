"""A kind of test that this version does not know: a journal of another version may have one."""

from leadline.kinds.kind import Kind
from leadline.plan.base_test import BaseTest


class Unknown(Kind[BaseTest]):
    """An unknown kind: only the transferred data can be shown."""

    name = "unknown"
    model = BaseTest


KIND = Unknown()
