"""PostgreSQL's functions over numbers that DuckDB lacks: numeric without floats, and angles in degrees.

A numeric comes and goes as text; results have the digits that PostgreSQL gives them, as far as a DECIMAL
holds them.
"""

from __future__ import annotations

import math
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal, localcontext

from millpond.kernels.postgres.rows import row_function

_WIDE = Context(prec=120, rounding=ROUND_HALF_UP)
_DIGITS = 16  # significant ones that PostgreSQL wants at least
_PLACES = 16  # of the DECIMAL that takes the result


def _rounded(value: Decimal, places: int) -> str:
    return f"{value.quantize(Decimal(1).scaleb(-max(places, 0)), context=_WIDE):f}"


def _places_of(value: Decimal) -> int:
    return max(0, -int(value.normalize(_WIDE).as_tuple().exponent))


def _base_weight(value: Decimal) -> int:
    """The weight of the first digit in base 10000."""
    return value.adjusted() // 4 if value else 0


@row_function("pg.numeric_sqrt.1", ("VARCHAR",), "VARCHAR")
def numeric_sqrt(text: str) -> str:
    value = Decimal(text)
    if value < 0:
        raise ValueError("cannot take square root of a negative number")
    places = _DIGITS - ((_base_weight(value) + 1) * 2 - 1)
    return _rounded(value.sqrt(_WIDE), max(places, _places_of(value)))


@row_function("pg.numeric_exp.1", ("VARCHAR",), "VARCHAR")
def numeric_exp(text: str) -> str:
    value = Decimal(text)
    if abs(value) > 6000:
        raise ValueError("value overflows numeric format")
    places = _DIGITS - int(float(value) * 0.434294481903252)
    return _rounded(value.exp(_WIDE), max(places, _places_of(value)))


@row_function("pg.numeric_ln.1", ("VARCHAR",), "VARCHAR")
def numeric_ln(text: str) -> str:
    value = _positive(text)
    found = value.ln(_WIDE)
    return _rounded(found, max(_DIGITS - _ln_weight(found), _places_of(value)))


def _ln_weight(logarithm: Decimal) -> int:
    """PostgreSQL's estimate: it rounds toward zero."""
    return int(math.log10(abs(logarithm))) if logarithm else 0


def _positive(text: str) -> Decimal:
    value = Decimal(text)
    if value <= 0:
        zero = "zero" if value == 0 else "a negative number"
        raise ValueError(f"cannot take logarithm of {zero}")
    return value


def _decimal_weight(value: Decimal) -> int:
    return value.adjusted() if value else 0


@row_function("pg.numeric_log.1", ("VARCHAR", "VARCHAR"), "VARCHAR")
def numeric_log(base: str, text: str) -> str:
    of, value = _positive(base), _positive(text)
    below = of.ln(_WIDE)
    if below == 0:
        raise ValueError("division by zero")
    above = value.ln(_WIDE)
    found = _WIDE.divide(above, below)
    places = _DIGITS - (_ln_weight(above) - _ln_weight(below))
    return _rounded(found, max(places, _places_of(of), _places_of(value)))


@row_function("pg.numeric_power.1", ("VARCHAR", "VARCHAR"), "VARCHAR")
def numeric_power(base: str, exponent: str) -> str:
    return _power(Decimal(base), Decimal(exponent), 0)


@row_function("pg.numeric_power.2", ("VARCHAR", "VARCHAR"), "VARCHAR")
def numeric_power_to_16_places(base: str, exponent: str) -> str:
    return _power(Decimal(base), Decimal(exponent), _DIGITS)


def _power(a: Decimal, b: Decimal, least_places: int) -> str:
    if a == 0 and b < 0:
        raise ValueError("zero raised to a negative power is undefined")
    whole = b == b.to_integral_value()
    if a < 0 and not whole:
        raise ValueError("a negative number raised to a non-integer power yields a complex result")
    if a == 0:
        return "1" if b == 0 else "0"
    with localcontext(_WIDE):
        found = a ** int(b) if whole else (b * abs(a).ln(_WIDE)).exp(_WIDE)
    places = _DIGITS - _decimal_weight(found)
    return _rounded(found, max(places, _places_of(a), _places_of(b), least_places))


@row_function("pg.numeric_div_trunc.1", ("VARCHAR", "VARCHAR"), "VARCHAR")
def numeric_div_trunc(a: str, b: str) -> str:
    if Decimal(b) == 0:
        raise ValueError("division by zero")
    return f"{_WIDE.divide_int(Decimal(a), Decimal(b)):f}"


@row_function("pg.numeric_trunc.1", ("VARCHAR", "BIGINT"), "VARCHAR")
def numeric_trunc(text: str, places: int) -> str:
    unit = Decimal(1).scaleb(-max(min(places, _PLACES), -38))
    value = Decimal(text)
    return f"{value.quantize(unit, rounding=ROUND_DOWN, context=_WIDE):f}"


def _as_integers(a: str, b: str) -> tuple[int, int, int]:
    """Two numerics as integers, and the places that were shifted."""
    x, y = Decimal(a), Decimal(b)
    places = max(_places_of(x), _places_of(y))
    return int(x.scaleb(places, _WIDE)), int(y.scaleb(places, _WIDE)), places


@row_function("pg.numeric_gcd.1", ("VARCHAR", "VARCHAR"), "VARCHAR")
def numeric_gcd(a: str, b: str) -> str:
    x, y, places = _as_integers(a, b)
    return f"{Decimal(math.gcd(x, y)).scaleb(-places, _WIDE):f}"


@row_function("pg.numeric_lcm.1", ("VARCHAR", "VARCHAR"), "VARCHAR")
def numeric_lcm(a: str, b: str) -> str:
    x, y, places = _as_integers(a, b)
    return f"{Decimal(math.lcm(x, y)).scaleb(-places, _WIDE):f}"


@row_function("pg.factorial.1", ("BIGINT",), "VARCHAR")
def factorial(number: int) -> str:
    if number < 0:
        raise ValueError("factorial of a negative number is undefined")
    if number > 33:
        raise ValueError("value overflows numeric format: it has more than 38 digits")
    return str(math.factorial(number))


@row_function("pg.numeric_scale.1", ("VARCHAR",), "INTEGER")
def numeric_scale(text: str) -> int:
    return len(text.partition(".")[2])


@row_function("pg.numeric_min_scale.1", ("VARCHAR",), "INTEGER")
def numeric_min_scale(text: str) -> int:
    return len(text.partition(".")[2].rstrip("0"))


@row_function("pg.numeric_series.1", ("VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR[]")
def numeric_series(start: str, end: str, step: str) -> list[str]:
    a, b, c = Decimal(start), Decimal(end), Decimal(step)
    count = int((b - a) / c) + 1 if (b - a) / c >= 0 else 0
    return [f"{a + n * c:f}" for n in range(count)]


@row_function("pg.width_bucket.1", ("VARCHAR", "VARCHAR", "VARCHAR", "BIGINT"), "INTEGER")
def width_bucket(value: str, low: str, high: str, count: int) -> int:
    if count <= 0:
        raise ValueError("count must be greater than zero")
    a, b, c = Decimal(value), Decimal(low), Decimal(high)
    if a.is_nan() or b.is_nan() or c.is_nan():
        raise ValueError("operand, lower bound, and upper bound cannot be NaN")
    if b.is_infinite() or c.is_infinite():
        raise ValueError("lower and upper bounds must be finite")
    if b == c:
        raise ValueError("lower bound cannot equal upper bound")
    outside_low, outside_high = (a < b, a >= c) if b < c else (a > b, a <= c)
    if outside_low or outside_high:
        return 0 if outside_low else count + 1
    return int(_WIDE.divide((a - b) * count, c - b)) + 1


@row_function("pg.float_exp.1", ("DOUBLE",), "DOUBLE")
def float_exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        raise ValueError("value out of range: overflow") from None


@row_function("pg.float_power.1", ("DOUBLE", "DOUBLE"), "DOUBLE")
def float_power(a: float, b: float) -> float:
    if a == 0 and b < 0:
        raise ValueError("zero raised to a negative power is undefined")
    if a < 0 and math.isfinite(b) and not b.is_integer():
        raise ValueError("a negative number raised to a non-integer power yields a complex result")
    try:
        return math.pow(a, b)
    except OverflowError:
        raise ValueError("value out of range: overflow") from None


@row_function("pg.degree_function.1", ("VARCHAR", "DOUBLE"), "DOUBLE")
def degree_function(name: str, angle: float) -> float:
    """Exact at multiples of 30 and 45 degrees."""
    if math.isnan(angle):
        return angle
    if name in ("asind", "acosd", "atand"):
        return _inverse(name, angle)
    if math.isinf(angle):
        raise ValueError("input is out of range")
    if name == "cotd":
        below = _tangent(angle)
        return math.inf * math.copysign(1, below) if below == 0 else 0.0 if math.isinf(below) else 1 / below
    if name == "tand":
        return _tangent(angle)
    return _sine(angle) if name == "sind" else _sine(math.fmod(angle, 360) + 90)


_SINES = {0: 0.0, 30: 0.5, 90: 1.0, 150: 0.5, 180: 0.0, 210: -0.5, 270: -1.0, 330: -0.5}


def _sine(angle: float) -> float:
    turned = angle % 360
    if turned in _SINES:
        return _SINES[int(turned)]
    return math.sin(math.radians(turned))


_TANGENTS = {0: 0.0, 45: 1.0, 90: math.inf, 135: -1.0, 180: -0.0, 225: 1.0, 270: -math.inf, 315: -1.0}


def _tangent(angle: float) -> float:
    sign = -1.0 if angle < 0 else 1.0
    turned = math.fmod(abs(angle), 360)
    if turned in _TANGENTS:
        return sign * _TANGENTS[int(turned)]
    return sign * math.tan(math.radians(turned))


_INVERSES = {
    ("asind", 0.5): 30.0,
    ("asind", -0.5): -30.0,
    ("acosd", 0.5): 60.0,
    ("acosd", -0.5): 120.0,
    ("atand", 1.0): 45.0,
    ("atand", -1.0): -45.0,
}


def _inverse(name: str, value: float) -> float:
    if name != "atand" and abs(value) > 1:
        raise ValueError("input is out of range")
    if (name, value) in _INVERSES:
        return _INVERSES[name, value]
    return math.degrees({"asind": math.asin, "acosd": math.acos, "atand": math.atan}[name](value))


@row_function("pg.atan2d.1", ("DOUBLE", "DOUBLE"), "DOUBLE")
def atan2d(y: float, x: float) -> float:
    found = math.degrees(math.atan2(y, x))
    exact = x == 0 or y == 0 or abs(x) == abs(y)
    return round(found / 45) * 45.0 if exact and not math.isnan(found) else found
