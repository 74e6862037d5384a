-- Filter for both renderers: page links, phone versions of figures, folded sections, table rows as lists on phones, and
-- a glossary link for the first use of each term.
local stringify = pandoc.utils.stringify
local html = FORMAT:match("html") ~= nil
local root, site, terms, linked = "", "", {}, {}

local function attribute(text)
  return (text:gsub("[&<>\"]", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;" }))
end

local function raw(text)
  return pandoc.RawInline("html", text)
end

local typst = FORMAT == "typst"

-- Places inside a PDF that a link can lead to.
local anchors = {}

local function link(element)
  -- Printed pages show the address behind a link, but not twice.
  if html and element.target:match("^https?://(.*)$") == stringify(element.content) then
    element.classes:insert("uri")
  end
  local inside = not element.target:match("^%a+:")
  -- In a PDF, a claim's number leads to the claim's place there, except in that place itself, where it leads to the site.
  local claim = typst and element.target:match("claims/(%u%d%d)%.qmd$")
  if claim and anchors["claim-" .. claim] and not element.classes:includes("outside") then
    element.target = "#claim-" .. claim
    return element
  end
  if typst then
    element.target = element.target:gsub("^%.%./", "")
  end
  -- A PDF does not contain the other pages: it links to the site, if its address is known.
  if typst and inside and (site == "" or element.target:match("^#") and not anchors[element.target:sub(2)]) then
    return element.content
  end
  -- Quarto converts links from sources to pages itself.
  if inside and not quarto then
    element.target = element.target:gsub("%.qmd$", ".html"):gsub("%.qmd#", ".html#")
    -- A page that is shown at any address needs links from the root.
    local base = typst and site or root:match("^/") and root or ""
    if not element.target:match("^[#/]") then
      element.target = base .. element.target
    end
  end
  return element
end

local function quoted(text)
  return '"' .. text:gsub('[\\"]', "\\%0") .. '"'
end

local function image(element)
  if typst then
    return pandoc.RawInline("typst", string.format("#picture(%s, width: %s, alt: %s)", quoted(element.src),
      element.attributes.width or "100%", quoted(element.attributes.alt or stringify(element.caption))))
  end
  if not html then
    return nil
  end
  if not element.classes:includes("chart") then
    return raw(string.format('<img class="%s" src="%s" alt="%s" loading="lazy">', attribute(table.concat(element.classes, " ")),
      attribute(element.src), attribute(element.attributes["fig-alt"] or stringify(element.caption))))
  end
  local phone = element.src:gsub("%.svg$", ".phone.svg")
  local alt = element.attributes["fig-alt"] or stringify(element.caption)
  return raw(string.format(
    '<picture><source media="(max-width: 700px)" srcset="%s"><img class="chart" src="%s" alt="%s" loading="lazy"></picture>',
    attribute(phone), attribute(element.src), attribute(alt)))
end

-- Spans and divisions that the PDF template typesets: functions of one content, functions of several, and their parts.
local SPANS = { fine = "fine", formula = "formula" }
local VERDICT_SPANS = { badge = "badge", clause = "clause", sign = "sign" }
local BLOCKS = { answer = true, keep = true, sheet = true, spare = true, twofold = true }
local CALLS = { beside = true, cards = true, steps = true, claims = true }
local PARTS = { side = true, card = true, step = true, row = true }

-- Typeset verdicts and small print in PDFs.
local function span(element)
  if not typst then
    return nil
  end
  local verdict
  for _, class in ipairs(element.classes) do
    verdict = verdict or class:match("^v%-(.+)$")
  end
  local opened
  for _, class in ipairs(element.classes) do
    if VERDICT_SPANS[class] then
      opened = string.format("#%s(%q)[", VERDICT_SPANS[class], verdict or "open")
    elseif SPANS[class] then
      opened = "#" .. SPANS[class] .. "["
    end
  end
  local content = element.content
  if anchors[element.identifier] then
    content:insert(1, pandoc.RawInline("typst", string.format("#metadata(none)<%s>", element.identifier)))
  end
  if not opened then
    return content
  end
  content:insert(1, pandoc.RawInline("typst", opened))
  content:insert(pandoc.RawInline("typst", "]"))
  return content
end

local function div(element)
  for _, class in ipairs(typst and element.classes or {}) do
    local opened, closed
    if BLOCKS[class] then
      local pages = element.attributes.pages
      opened, closed = "#" .. class .. (pages and "(pages: " .. pages .. ")[" or "["), "]"
    elseif CALLS[class] then
      opened, closed = "#" .. class .. "(", ")"
    elseif PARTS[class] then
      opened, closed = "[", "],"
    end
    if opened then
      local content = element.content
      content:insert(1, pandoc.RawBlock("typst", opened))
      content:insert(pandoc.RawBlock("typst", closed))
      return content
    end
  end
  local summary = element.attributes.summary
  if not (summary and element.classes:includes("fold")) then
    return nil
  end
  element.attributes.summary = nil
  if html then
    local content = element.content
    local id = element.identifier ~= "" and string.format(' id="%s"', attribute(element.identifier)) or ""
    content:insert(1, pandoc.RawBlock("html", string.format(
      '<details class="fold"%s><summary>%s</summary>', id, attribute(summary))))
    content:insert(pandoc.RawBlock("html", "</details>"))
    return content
  end
  return { pandoc.Para({ pandoc.Strong({ pandoc.Str(summary) }) }), table.unpack(element.content) }
end

-- Align numbers by a class: a server may forbid the style attributes that pandoc would write.
local function align_cells(row, columns)
  for at, cell in ipairs(row.cells) do
    local alignment = cell.alignment ~= "AlignDefault" and cell.alignment or columns[at] and columns[at][1]
    cell.alignment = "AlignDefault"
    if alignment == "AlignRight" then
      cell.classes:insert("right")
    end
  end
end

-- Most rows of a table that a page break must not divide.
local SHORT = 6

-- Copy column headings to cells: a phone shows a row as a list.
local function tabular(element)
  if typst then
    local rows = 0
    for _, body in ipairs(element.bodies) do
      rows = rows + #body.body
    end
    if rows <= SHORT then
      return { pandoc.RawBlock("typst", "#keep["), element, pandoc.RawBlock("typst", "]") }
    end
  end
  if not html then
    return nil
  end
  local heads = {}
  for _, row in ipairs(element.head.rows) do
    align_cells(row, element.colspecs)
    for at, cell in ipairs(row.cells) do
      heads[at] = stringify(cell.contents)
    end
  end
  for _, body in ipairs(element.bodies) do
    for _, row in ipairs(body.body) do
      align_cells(row, element.colspecs)
      for at, cell in ipairs(row.cells) do
        if heads[at] and heads[at] ~= "" then
          cell.attributes["data-head"] = heads[at]
        end
      end
    end
  end
  -- Reset column widths and alignment.
  for at in ipairs(element.colspecs) do
    element.colspecs[at] = { "AlignDefault" }
  end
  return element
end

-- Link glossary terms in a paragraph; at each word, try the longest term first.
local function link_terms(inlines)
  local at = 1
  while at <= #inlines do
    if inlines[at].t == "Str" then
      for words = 3, 1, -1 do
        local last = at + 2 * (words - 1)
        local text, fits = "", last <= #inlines
        for place = at, math.min(last, #inlines) do
          local part = inlines[place]
          fits = fits and ((place - at) % 2 == 0 and part.t == "Str" or (place - at) % 2 == 1 and part.t == "Space")
          text = text .. (part.t == "Str" and part.text or " ")
        end
        local before, term, after = text:match("^([%(\"“]*)(.-)([%.,;:%)\"”]*)$")
        local anchor = fits and term and (terms[term] or terms[term:lower()])
        if anchor and not linked[anchor] then
          linked[anchor] = true
          for _ = at, last do
            inlines:remove(at)
          end
          local place = at
          for _, part in ipairs({
            before ~= "" and pandoc.Str(before) or false,
            pandoc.Link(term, root .. "glossary.html#" .. anchor, "", { class = "term" }),
            after ~= "" and pandoc.Str(after) or false,
          }) do
            if part then
              inlines:insert(place, part)
              place = place + 1
            end
          end
          at = place - 1
          break
        end
      end
    end
    at = at + 1
  end
  return inlines
end

local function link_terms_in_paragraphs(blocks)
  return blocks:walk({
    traverse = "topdown",
    Header = function(element) return element, false end,
    Link = function(element) return element, false end,
    Table = function(element) return element, false end,
    Div = function(element)
      if element.classes:includes("crumbs") or element.classes:includes("plain") then
        return element, false
      end
    end,
    Para = function(element) element.content = link_terms(element.content) return element end,
    Plain = function(element) element.content = link_terms(element.content) return element end,
  })
end

function Pandoc(document)
  local meta = document.meta
  root = meta.root and stringify(meta.root) or ""
  site = meta.address and stringify(meta.address) or ""
  if html and meta["glossary-terms"] and not meta["no-terms"] then
    for term, anchor in pairs(meta["glossary-terms"]) do
      terms[term] = stringify(anchor)
    end
    document.blocks = link_terms_in_paragraphs(document.blocks)
  end
  if typst then
    document.blocks:walk({
      Header = function(element) anchors[element.identifier] = true end,
      Span = function(element) anchors[element.identifier] = element.identifier:match("^claim%-") ~= nil end,
    })
  end
  document.blocks = document.blocks:walk({ Link = link, Image = image, Div = div, Span = span, Table = tabular })
  return document
end
