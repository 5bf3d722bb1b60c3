"""Time zones in texts as PostgreSQL reads them: its default abbreviations, names, offsets from UTC."""

from __future__ import annotations

import datetime
import re
from functools import cache, lru_cache
from zoneinfo import ZoneInfo, available_timezones

from millpond.kernels.postgres.calendar import SECOND_US

_MINUTES = {
    -600: "hst taht", -570: "mart", -540: "akst gamt", -480: "pst akdt", -420: "mst pdt",
    -360: "cst galt mdt", -300: "act cot est pet cdt", -240: "amt ast bot edt", -210: "nft nst",
    -180: "bra brt gft pmst uyt wgt adt clst pyst", -150: "ndt", -120: "fnt brst pmdt uyst wgst",
    -60: "azot egt fnst", 0: "gmt uct ut utc wet z zulu azost egst", 60: "cet met mez wat bst wetdst",
    120: "eet ist sast bdst cest cetdst mest mesz metdst", 180: "eat fet eest eetdst idt", 210: "irt",
    240: "mut ret sct msd", 270: "aft", 300: "mvt pkt tft tjt uzt must", 345: "npt",
    360: "almt bdt btt xjt kgst pkst uzst yekst", 390: "mmt", 420: "cxt ict wast almst",
    480: "awst bnt bort cct hkt myt pht wadt", 525: "acwst", 540: "jayt jst kst pwt awsst ulast wdt",
    570: "acst cast", 600: "aest chut ddut ligt mpt pgt trut yapt kdt",
    630: "lhst acdt acsst cadt sadt", 660: "pont vut aedt aesst",
    720: "fjt gilt mht nzst nzt tvt wakt wft", 765: "chast", 780: "tot fjst nzdt", 825: "chadt",
}  # fmt: skip
# Abbreviations whose meaning changed with the years: the zones that say which it was.
_CHANGING = {
    "America": "art=Argentina/Buenos_Aires arst=Argentina/Buenos_Aires clt=Santiago gyt=Guyana pyt=Asuncion"
    " vet=Caracas",
    "Antarctica": "davt=Davis mawt=Mawson",
    "Asia": "amst=Yerevan anast=Anadyr anat=Anadyr azst=Baku azt=Baku gest=Tbilisi get=Tbilisi"
    " irkst=Irkutsk irkt=Irkutsk kgt=Bishkek krast=Krasnoyarsk krat=Krasnoyarsk lkt=Colombo magst=Magadan"
    " magt=Magadan novst=Novosibirsk novt=Novosibirsk omsst=Omsk omst=Omsk petst=Kamchatka pett=Kamchatka"
    " sgt=Singapore tmt=Ashgabat ulat=Ulaanbaatar vlast=Vladivostok vlat=Vladivostok yakst=Yakutsk"
    " yakt=Yakutsk yekt=Yekaterinburg",
    "Atlantic": "fkst=Stanley fkt=Stanley",
    "Australia": "lhdt=Lord_Howe",
    "Europe": "msk=Moscow volt=Volgograd",
    "Indian": "iot=Chagos",
    "Pacific": "ckt=Rarotonga easst=Easter east=Easter kost=Kosrae lint=Kiritimati nut=Niue tkt=Fakaofo",
}
_FIXED_S = {name: minutes * 60 for minutes, names in _MINUTES.items() for name in names.split()}
_BY_ZONE = {
    name: f"{area}/{city}"
    for area, pairs in _CHANGING.items()
    for name, city in (pair.split("=") for pair in pairs.split())
}
_POSIX = re.compile(r"[a-z]{3,}([+-]?)(\d{1,2})(?::(\d\d))?")
_EPOCH = datetime.datetime(1970, 1, 1)
_FIRST_S = -62_100_000_000  # in the year 2
_LAST_S = 253_000_000_000  # in the year 9987
_FOUR_CENTURIES_S = 146_097 * 86_400

Zone = int | str  # seconds east of UTC, or a name of the time zone database


def abbreviated(text: str) -> Zone | None:
    """The zone of an abbreviation in lower case.

    >>> abbreviated("pst"), abbreviated("msk"), abbreviated("monday")
    (-28800, 'Europe/Moscow', None)
    """
    found = _FIXED_S.get(text)
    return _BY_ZONE.get(text) if found is None else found


def named(text: str) -> Zone | None:
    """The zone of a name in any case, or of POSIX's form, which counts to the west.

    >>> named("america/new_york"), named("foo+3"), named("nowhere")
    ('America/New_York', -10800, None)
    """
    known = _names().get(text)
    if known is not None:
        return known
    posix = _POSIX.fullmatch(text)
    if posix is None:
        return None
    seconds = int(posix[2]) * 3600 + int(posix[3] or 0) * 60
    return seconds if posix[1] == "-" else -seconds


@cache
def _names() -> dict[str, str]:
    return {name.lower(): name for name in available_timezones()}


def is_constant(zone: Zone) -> bool:
    """Is the difference from UTC the same at all times?"""
    return isinstance(zone, int) or zone.upper() in ("UTC", "GMT", "ETC/UTC", "ETC/GMT", "UCT", "ZULU")


def offset_s(zone: Zone, local_us: int) -> int:
    """Seconds east of UTC at a local time.

    A time that a change of clocks skips has the difference before the change; one that comes twice has that
    after it.

    >>> offset_s("America/New_York", 0), offset_s("America/New_York", 1_720_000_000_000_000)
    (-18000, -14400)
    """
    return zone if isinstance(zone, int) else _offset_of_name(zone, local_us // SECOND_US)


@lru_cache(maxsize=4096)
def _offset_of_name(zone: str, local_s: int) -> int:
    if local_s >= _LAST_S:  # of Python's calendar: the rules repeat with the calendar
        local_s -= (local_s - _LAST_S + _FOUR_CENTURIES_S) // _FOUR_CENTURIES_S * _FOUR_CENTURIES_S
    at = _EPOCH + datetime.timedelta(seconds=max(local_s, _FIRST_S))
    known = ZoneInfo(zone)
    both = [at.replace(tzinfo=known, fold=fold).utcoffset() for fold in (0, 1)]
    return min(int(one.total_seconds()) for one in both if one is not None)
